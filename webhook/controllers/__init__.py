"""What runs beside admission in a cluster: registration, certificates, the status of policies."""
