// What a run counts, and the line that is printed of it.

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type result struct {
	Mode       string           `json:"mode"`
	Ops        int64            `json:"ops"`
	Requests   int64            `json:"requests"`
	Seconds    float64          `json:"seconds"`
	OpsPerS    float64          `json:"ops_per_s"`
	MBPerS     float64          `json:"MB_per_s"`
	P50        uint32           `json:"p50_us"`
	P99        uint32           `json:"p99_us"`
	P999       uint32           `json:"p999_us"`
	Max        uint32           `json:"max_us"`
	Codes      map[string]int64 `json:"codes"`
	Stored     *int64           `json:"stored,omitempty"`
	ClientCPU  float64          `json:"client_cpu_s"`
	ClientUS   float64          `json:"client_us_per_op"`
	ServerCPU  float64          `json:"server_cpu_s,omitempty"`
	ServerUser float64          `json:"server_user_s,omitempty"`
	ServerUS   float64          `json:"server_us_per_op,omitempty"`
	RSSBefore  float64          `json:"server_rss_before_MB,omitempty"`
	RSS        float64          `json:"server_rss_MB,omitempty"`
	AnonRSS    float64          `json:"server_anon_MB,omitempty"`
	Extra      map[string]any   `json:"extra,omitempty"`
	Error      string           `json:"error,omitempty"`
}

// tally is what one connection counts.
type tally struct {
	msgs, reqs, bytes int64
	micros            []uint32
	codes             map[int]int64
	err               error
}

func (t *tally) took(d time.Duration) { t.micros = append(t.micros, uint32(d.Microseconds())) }

func (t *tally) add(o *tally) {
	t.msgs, t.reqs, t.bytes = t.msgs+o.msgs, t.reqs+o.reqs, t.bytes+o.bytes
	t.micros = append(t.micros, o.micros...)
	for k, v := range o.codes {
		t.codes[k] += v
	}
	if t.err == nil {
		t.err = o.err
	}
}

func newTally() *tally { return &tally{codes: map[int]int64{}} }

func percentiles(us []uint32) (p50, p99, p999, max uint32) {
	if len(us) == 0 {
		return
	}
	slices.Sort(us)
	at := func(p float64) uint32 { return us[int(p*float64(len(us)-1))] }
	return at(.5), at(.99), at(.999), us[len(us)-1]
}

type meter struct {
	o         *options
	start     time.Time
	self      float64
	user, sys float64
	rss       float64
}

func selfCPU() float64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
}

// serverUsage sums utime and stime (in clock ticks of 10 ms) and resident memory over the -pid processes.
func serverUsage(pids []int) (user, sys, rss, anon float64) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			fmt.Fprintln(os.Stderr, "loadgen: -pid:", err)
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		u, _ := strconv.ParseFloat(f[11], 64)
		s, _ := strconv.ParseFloat(f[12], 64)
		user, sys = user+u/100, sys+s/100
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for _, line := range strings.Split(string(status), "\n") {
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			kb, _ := strconv.ParseFloat(f[1], 64)
			switch f[0] {
			case "VmRSS:":
				rss += kb / 1024
			case "RssAnon:":
				anon += kb / 1024
			}
		}
	}
	return
}

func startMeter(o *options) *meter {
	m := &meter{o: o}
	m.user, m.sys, m.rss, _ = serverUsage(o.pids)
	m.self, m.start = selfCPU(), time.Now()
	return m
}

// finish makes the result; seconds is the time of the load itself, while the CPU figures are taken now.
func (m *meter) finish(t *tally, seconds float64) *result {
	r := &result{Mode: m.o.mode, Ops: t.msgs, Requests: t.reqs, Seconds: seconds, Codes: map[string]int64{}, Extra: map[string]any{}}
	r.ClientCPU = selfCPU() - m.self
	if len(m.o.pids) > 0 {
		user, sys, rss, anon := serverUsage(m.o.pids)
		r.ServerUser, r.ServerCPU = user-m.user, user+sys-m.user-m.sys
		r.RSSBefore, r.RSS, r.AnonRSS = m.rss, rss, anon
	}
	if t.msgs > 0 {
		r.OpsPerS, r.MBPerS = float64(t.msgs)/seconds, float64(t.bytes)/seconds/1e6
		r.ClientUS, r.ServerUS = r.ClientCPU*1e6/float64(t.msgs), r.ServerCPU*1e6/float64(t.msgs)
	}
	for _, f := range []*float64{&r.Seconds, &r.OpsPerS, &r.MBPerS, &r.ClientCPU, &r.ClientUS, &r.ServerCPU, &r.ServerUser, &r.ServerUS, &r.RSSBefore, &r.RSS, &r.AnonRSS} {
		*f = math.Round(*f*1000) / 1000
	}
	r.P50, r.P99, r.P999, r.Max = percentiles(t.micros)
	for k, v := range t.codes {
		r.Codes[strconv.Itoa(k)] = v
	}
	if t.err != nil {
		r.Error = t.err.Error()
	}
	return r
}
