package tree

// knomial is node v of the k-nomial tree of size ranks with root 0: the parent of v is v with its
// lowest non-zero digit to the base k set to zero. Node v has the subtree v … v+extent−1, so that
// a reduction over it keeps the order of the ranks.
//
//	k = 2, 8 ranks        0
//	                  / / |
//	                 1 2  4
//	                   | / |
//	                   3 5 6
//	                       |
//	                       7
func knomial(v, size, k int) node {
	n := node{parent: -1}
	weight := knomialWeight(v, size, k)
	if v > 0 {
		n.parent = v - v/weight%k*weight
	}
	for w := 1; w < weight; w *= k {
		for c := v + w; c < size && c < v+k*w; c += w {
			n.right = append(n.right, c)
		}
	}
	return n
}

// knomialWeight is the weight of the lowest non-zero digit of v, for the root the least power of k
// that is not below size.
func knomialWeight(v, size, k int) int {
	w := 1
	for v == 0 && w < size || v != 0 && v/w%k == 0 {
		w *= k
	}
	return w
}

// extent is the number of ranks in the subtree of v.
func extent(v, size, k int) int { return min(knomialWeight(v, size, k), size-v) }
