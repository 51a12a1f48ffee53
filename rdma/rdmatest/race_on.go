//go:build race

package rdmatest

// raceEnabled scales tests down: the race detector makes them an order of magnitude slower.
const raceEnabled = true
