"""Runs a command of the launcher over ssh, in this directory and environment.

Everybody on a machine can see command lines. So the environment goes through standard input: one
line per variable, and an empty line. The command's own input follows.
"""

import os
import re
import shlex
from typing import Dict, List, Mapping, Sequence

from engine.errors import UserError

# ssh times out after 2 minutes: workers, with their heartbeats, notice a loss first.
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o",
        "ServerAliveCountMax=8")
_SHELL = 'cd "$1" && shift && while IFS= read -r v && [ -n "$v" ]; do export "$v"; done && exec "$@"'

# Variables that affect programs, devices, numerics and networking.
FORWARDED = """
PATH LD_LIBRARY_PATH
PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONUNBUFFERED PYTHONWARNINGS PYTHONNOUSERSITE
PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONUTF8 PYTHONFAULTHANDLER
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_CACHE_PATH CUDA_CACHE_MAXSIZE CUDA_CACHE_DISABLE
CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS CUBLAS_WORKSPACE_CONFIG
NVIDIA_TF32_OVERRIDE
OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES KMP_AFFINITY KMP_BLOCKTIME
GRPC_VERBOSITY GRPC_TRACE GRPC_DNS_RESOLVER GRPC_POLL_STRATEGY GRPC_ENABLE_FORK_SUPPORT
TF_CPP_MIN_LOG_LEVEL TF_CPP_MAX_VLOG_LEVEL TF_CPP_VMODULE TF_XLA_FLAGS XLA_FLAGS
TF_DETERMINISTIC_OPS TF_CUDNN_DETERMINISTIC TF_CUDNN_USE_AUTOTUNE TF_CUDNN_USE_FRONTEND
TF_ENABLE_ONEDNN_OPTS TF_SET_ONEDNN_FPMATH_MODE TF_USE_CUBLASLT TF_DISABLE_CUBLAS_TENSOR_OP_MATH
TF_FP16_MATMUL_USE_FP32_COMPUTE TF_MATMUL_AUTOTUNE_ENABLE
TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_ALLOCATOR TF_FORCE_UNIFIED_MEMORY TF_PER_DEVICE_MEMORY_LIMIT_MB
TF_GPU_HOST_MEM_LIMIT_IN_MB TF_GPU_THREAD_MODE TF_GPU_THREAD_COUNT TF_NUM_INTEROP_THREADS
TF_NUM_INTRAOP_THREADS TF_MIN_GPU_MULTIPROCESSOR_COUNT
NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_SOCKET_IFNAME NCCL_SOCKET_FAMILY
NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD NCCL_IB_DISABLE NCCL_IB_HCA NCCL_IB_GID_INDEX NCCL_IB_TC
NCCL_IB_SL NCCL_IB_PKEY NCCL_IB_TIMEOUT NCCL_IB_RETRY_CNT NCCL_IB_PCI_RELAXED_ORDERING
NCCL_IB_QPS_PER_CONNECTION NCCL_IB_ADAPTIVE_ROUTING NCCL_NET NCCL_NET_PLUGIN NCCL_NET_GDR_LEVEL
NCCL_NET_GDR_READ NCCL_DMABUF_ENABLE NCCL_CROSS_NIC NCCL_PXN_DISABLE NCCL_P2P_DISABLE
NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_COLLNET_ENABLE NCCL_ALGO NCCL_PROTO NCCL_BUFFSIZE
NCCL_NTHREADS NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_TOPO_FILE NCCL_GRAPH_FILE NCCL_LAUNCH_MODE
""".split()


def variables(named: Sequence[str]) -> Dict[str, str]:
    """The variables to forward to other machines: FORWARDED and `named`.

    Raises:
        UserError: one of `named` is not set; a value has several lines.
    """
    for name in named:
        if name not in os.environ or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise UserError(f"--forward_env: there is no variable {name!r} in this environment")
    values = {name: os.environ[name] for name in (*FORWARDED, *named) if name in os.environ}
    for name, value in values.items():
        if "\n" in value:
            raise UserError(f"the variable {name} has several lines, and only one can be "
                            "forwarded; unset it, or take it out of --forward_env")
    return values


def arguments(host: str, words: Sequence[str]) -> List[str]:
    """The ssh command line for a command in this directory; it reads `as_input` first."""
    line = ["exec", "sh", "-c", _SHELL, "sh", os.getcwd(), *words]
    return [*_SSH, "--", host, " ".join(map(shlex.quote, line))]


def as_input(environment: Mapping[str, str]) -> bytes:
    """The environment as the beginning of the command's standard input."""
    return os.fsencode("".join(f"{name}={value}\n" for name, value in environment.items()) + "\n")
