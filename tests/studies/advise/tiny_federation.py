"""An experiment whose pilots take a moment."""

BASE = {
    "data": "digits",
    "partition": {"clients": 8},
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"steps": 2},
    "participation": 0.5,
    "rounds": 9,
    "engine": "serial",
}
