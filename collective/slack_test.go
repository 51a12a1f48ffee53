package collective_test

import "flag"

var (
	thorough    = flag.Bool("thorough", false, "run campaigns at length")
	campaign    = flag.Int("campaign", 0, "how many ranks the campaign kills over each provider; 0: a few")
	acrossHosts = flag.Bool("hosts", false, "run tests across network namespaces; needs root and iproute2")
)

// slack stretches bounds on a machine that is busy with other tests.
const slack = 5
