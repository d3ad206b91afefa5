"""Several replicas side by side: who serves which request, and what they come to together."""
