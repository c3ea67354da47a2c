"""The read model as JSON: what people and programs ask for."""
