# The service on TensorFlow 2.15. The model is a folder that is mounted at /model:
#   docker build -t bert-serving . && docker run --gpus=all -p 8501:8501 -v "$PWD/out/demo:/model:ro" bert-serving
FROM python:3.11-slim-bookworm
# gpu brings CUDA 12 as packages; cpu does not.
ARG DEVICE=gpu
WORKDIR /app
COPY requirements.txt ./
COPY encoder/requirements.txt encoder/
COPY serving/requirements.txt serving/
RUN pip install --no-cache-dir -r requirements.txt -r serving/requirements.txt \
    && if [ "$DEVICE" = gpu ]; then pip install --no-cache-dir "tensorflow[and-cuda]==2.15.1"; fi
COPY . .
# With a home, where CUDA keeps the code that it compiles for cards which are newer than this TensorFlow.
RUN useradd --system --create-home --no-log-init --uid 10001 service
USER 10001
EXPOSE 8501
ENTRYPOINT ["python", "-m", "serving.run", "--host=0.0.0.0", "--port=8501"]
CMD ["--model=/model"]
