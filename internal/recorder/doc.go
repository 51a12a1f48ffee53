// Package recorder is a communicator's flight recorder: the last calls, kept for the day when one
// hangs or fails, and the reading of what all ranks kept.
//
// A [Ring] belongs to the goroutine that makes the calls and costs a call a few plain stores. What it
// holds leaves the process as a [Dump], one a rank, in JSON. [Explain] merges the dumps of the ranks
// of a communicator and says who waits for whom, and which rank is late, absent, or in another call.
//
// The package is pure: no goroutine, clock, file or logger.
package recorder
