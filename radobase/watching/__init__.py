"""What a node tells the machines that watch it: metrics, whether it is ready, and why not."""
