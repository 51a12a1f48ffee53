// Package tuner chooses the algorithm of a call: which of the catalog, on how many channels, in chunks of
// how many bytes.
//
// It is a pure function of what all ranks have agreed on ([Config]) and of the call ([Query]), so that
// ranks can never choose differently: nothing about the local machine, no clock and no floating point
// enters it (floating point may round differently on another processor). docs/tuning.md describes it
// for users.
//
// A choice is made in this order:
//
//  1. What cannot serve the call is refused: [schedule.Info.Supports]; an operation that does not
//     commute needs Ordered algorithms; [Config.Reproducible] needs Canonical ones, and so on.
//  2. What the user excluded is refused ([Rules], the setting GCCL_ALGO).
//  3. If the tuning file ([File]) measured some of what is left in this situation, the fastest
//     of those is taken.
//  4. Else the row of the table of defaults that fits, if it is among what is left.
//  5. Else the shortest time that the cost model predicts.
package tuner
