// Package executor replays schedules over links.
//
// [Compile] turns a schedule into a [Program]: runs of steps that build one value become one n-ary
// group, the sends of that value join it, so that segments stream through a rank. [Program.Plan]
// fits a program to byte lengths: windows and, per span, offset and length. [Engine.Run] replays a
// plan: the lanes are polled by the calling goroutine; a lane moves as far as its links allow and
// then the next one is tried; when none moves, the engine waits (spin, yield, sleep; see Wait).
//
// A group fires piece by piece: a piece is as long as all its received operands, and the free slots
// of all its sends, allow. It holds received slots until every send has one: package verify proves
// schedules in this fused form.
//
// The steady state allocates nothing.
package executor
