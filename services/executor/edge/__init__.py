"""The executor's input and output: polls, events, calls and their outcomes, and its metrics."""
