"""When what clients send is applied, and how long it takes them in simulated time."""
