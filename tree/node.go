package tree

// node is the place of one rank in a tree. Data from the children on the left belongs before the
// rank's own in a reduction, from those on the right behind it, both in the order of the lists.
type node struct {
	parent      int // −1: the root
	left, right []int
}

// degree is the number of children.
func (n *node) degree() int { return len(n.left) + len(n.right) }

// renamed is the node with its neighbours under other names.
func (n node) renamed(name func(int) int) node {
	if n.parent >= 0 {
		n.parent = name(n.parent)
	}
	for _, list := range [][]int{n.left, n.right} {
		for i := range list {
			list[i] = name(list[i])
		}
	}
	return n
}

// rotated names ranks that were counted from the root.
func rotated(root, size int) func(int) int {
	return func(v int) int { return (v + root) % size }
}
