"""Why a model lost accuracy: in which round, in local training or aggregation, and by whose updates."""
