"""The primal-dual interior-point method that routes share, and the route `path`, which is that method."""
