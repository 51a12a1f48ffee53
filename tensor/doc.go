// Package tensor names what collectives move and combine: element types, views of a caller's
// memory, the even division of a count, and reduction operations with their arithmetic.
//
// Generic functions ([Of], [Custom]) turn typed slices and functions into plain values; below
// them everything is bytes and an element type. docs/numerics.md is the contract of the arithmetic.
package tensor
