package tree

import "math/bits"

// double is node v of one of two trees of size ranks which share their root 0. Under the root both
// are binary trees over the ranks 1 … size−1, and a rank with children in one of them is a leaf in
// the other: so a rank that passes on half of the data in each sends as much as it receives.
//
// The first tree numbers its nodes in order, which makes the odd ones leaves. The second is the
// same tree under other names: mirrored if that swaps odd and even, otherwise turned by one.
// Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", Parallel Computing 35 (2009).
//
//	size 8   first:  0 ─ 4 ┬ 2 ┬ 1     second: 0 ─ 3 ┬ 1 ┬ 7
//	                       │   └ 3                   │   └ 2
//	                       └ 6 ┬ 5                   └ 5 ┬ 4
//	                           └ 7                       └ 6
func double(second bool, v, size int) node {
	switch {
	case !second || size < 3:
		return inorder(v, size)
	case size%2 == 1: // 1 … size−1 backwards
		mirror := func(u int) int {
			if u == 0 {
				return 0
			}
			return size - u
		}
		n := inorder(mirror(v), size)
		if v != 0 {
			n.left, n.right = n.right, n.left
		}
		return n.renamed(mirror)
	}
	up := func(u int) int { // 1 → 2 → … → size−1 → 1
		if u == 0 {
			return 0
		}
		return u%(size-1) + 1
	}
	down := func(u int) int {
		switch u {
		case 0:
			return 0
		case 1:
			return size - 1
		}
		return u - 1
	}
	return inorder(up(v), size).renamed(down)
}

// inorder is node v of a binary tree over 1 … size−1 whose root is the only child of 0. A node has
// smaller ones in its left subtree and greater ones in its right subtree; its height is the number
// of trailing zero bits. Where a right child does not exist, the next existing node below it takes
// its place.
func inorder(v, size int) node {
	n := node{parent: -1}
	bit := v & -v
	if v == 0 {
		if size > 1 {
			n.right = append(n.right, 1<<(bits.Len(uint(size-1))-1))
		}
		return n
	}
	n.parent = v&^bit | bit*2
	if n.parent >= size {
		n.parent = v &^ bit
	}
	if bit > 1 {
		n.left = append(n.left, v-bit/2)
	}
	for half := bit / 2; half > 0; half /= 2 {
		if v+half < size {
			n.right = append(n.right, v+half)
			break
		}
	}
	return n
}
