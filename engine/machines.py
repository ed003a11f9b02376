"""Which machines take part in a run, as cluster managers say it in the variable TF_CONFIG.

So far that is one machine. Kubernetes' operators set TF_CONFIG for a single one, too.
"""

import json
import os

from engine.errors import UserError

_VARIABLE = "TF_CONFIG"


def check_environment() -> None:
    """Accepts a TF_CONFIG with this machine alone, and takes it out of the environment.

    TensorFlow reads the variable when it makes a strategy or an Estimator's configuration, and
    would wait for the other machines there.

    Raises:
        UserError: TF_CONFIG names other machines, or is not of its format.
    """
    text = os.environ.get(_VARIABLE)
    if text is None:
        return
    try:
        cluster = dict(json.loads(text or "{}").get("cluster") or {})
        machines = [address for addresses in cluster.values()
                    for address in ([addresses] if isinstance(addresses, str) else list(addresses))]
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{_VARIABLE} in the environment is not the JSON of a cluster ({error}): "
                        f"{text[:60]!r}; unset it to train on this machine") from error
    if len(machines) > 1:
        raise UserError(f"{_VARIABLE} in the environment names {len(machines)} machines "
                        f"({', '.join(map(str, machines[:4]))}), and a run takes one machine with "
                        f"all its GPUs; unset {_VARIABLE} to train on this machine alone")
    del os.environ[_VARIABLE]
