package bootstrap

import (
	"fmt"
	"hash/fnv"
)

// The ports that are derived from a job's identity lie below Linux's range of ephemeral ports (32768
// to 60999), so that no outgoing connection holds one by chance, and away from the ports that
// launchers use. Each job has derivedPorts of them in a row: rank 0 takes the first that is free and
// the others try all, so that neither several groups of a job nor jobs with equal derived ports get in
// each other's way; the handshake tells them apart.
const (
	derivedFirst = 20000
	derivedPorts = 8
	derivedSets  = 1500
)

// derivePorts returns the ports "first-last" of a job.
func derivePorts(identity string) string {
	h := fnv.New64a()
	h.Write([]byte(identity))
	first := derivedFirst + derivedPorts*int(h.Sum64()%derivedSets)
	return fmt.Sprintf("%d-%d", first, first+derivedPorts-1)
}
