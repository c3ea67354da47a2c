"""The network of jobs: a namespace of their own, the doors of the cloud in it, and a way out to the site's network."""
