"""What runs on Kubernetes: checks of its objects, and how large a cluster has to be."""
