"""The registration with the API server: webhook configurations and what else an installation is made of. Pure."""
