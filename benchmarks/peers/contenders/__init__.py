"""One module for each contender, run as `python -m contenders.<name> FOLDER` by the driver."""
