"""A git-native swarm of agents that makes GPU kernels faster. Importing it does nothing."""

__version__ = "0.1.0"
