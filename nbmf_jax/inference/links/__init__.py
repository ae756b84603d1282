"""Peers with a link function: V ~ Bernoulli(link(W H)), whose factors are no probabilities."""
