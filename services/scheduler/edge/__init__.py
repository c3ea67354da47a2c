"""Where schedulers meet the world: answers, signals, plug-ins, metrics."""
