package collective_test

import (
	"flag"
	"time"
)

var (
	thorough    = flag.Bool("thorough", false, "run campaigns at length")
	campaign    = flag.Int("campaign", 0, "how many ranks the campaign kills over each provider; 0: a few")
	campaignFor = flag.Duration("campaign-for", time.Hour, "how long the campaign of kills over one provider begins new jobs")
	campaignLog = flag.String("campaign-log", "", "a file to which kills are added, and from all of which the table is made")
	acrossHosts = flag.Bool("hosts", false, "run tests across network namespaces; needs root and iproute2")
)

// slack stretches bounds on a machine that is busy with other tests.
const slack = 5
