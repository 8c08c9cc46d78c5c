// The pause image of the node image.
module bufconf.dev/kind-node/pause

go 1.26.0
