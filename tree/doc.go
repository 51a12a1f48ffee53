// Package tree holds the algorithms in which data flows along trees: k-nomial trees, which are
// best for small messages from or to a root, and the double binary tree, which moves large ones at
// full bandwidth in logarithmically many steps.
//
// Data streams through a tree: with Shape.Pieces above 1, and segment by segment in any case,
// because a rank passes on what it receives in the same fused step. [Algorithms] lists promises
// and costs, in the words of package direct: p ranks, S the length of the data, α the time of a
// message, β of moving a byte and γ of combining a byte.
//
// Every function is pure and has the type schedule.Algorithm. A single rank is legal everywhere.
package tree
