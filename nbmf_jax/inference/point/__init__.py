"""Point estimates: maximum likelihood and maximum a posteriori."""
