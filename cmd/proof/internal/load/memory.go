package load

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	sampleEvery = time.Second
	// settledAfter is when the memory of a server is to have stopped growing.
	settledAfter = 20 * time.Second
	// mostGrowth is how much it may grow from then on.
	mostGrowth = 0.10
)

// metric asks a server for one of its figures, by its name in /metrics.
func metric(ctx context.Context, s *server, name string) (float64, error) {
	at, err := url.Parse(s.url)
	if err != nil {
		return 0, fmt.Errorf("asking for the metrics: %w", err)
	}
	at.Path = "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, fmt.Errorf("asking for the metrics: %w", err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("asking for the metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("asking for the metrics: %s", res.Status)
	}
	found, value := false, 0.0
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			if value, err = strconv.ParseFloat(text, 64); err != nil {
				return 0, fmt.Errorf("reading the metric %s: %w", name, err)
			}
			found = true
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading the metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("the server tells no %s", name)
	}
	return value, nil
}

// residentMemory is the metric of a process's memory, in bytes.
const residentMemory = "process_resident_memory_bytes"

// A memory is what a server was seen to use.
type memory struct {
	mu      sync.Mutex
	began   time.Time
	samples []sample
}

type sample struct {
	at    time.Duration // since it began
	bytes float64
}

// watch samples a server's memory until ctx ends.
func (m *memory) watch(ctx context.Context, s *server, w wrong) {
	m.began = time.Now()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		bytes, err := metric(ctx, s, residentMemory)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.add("metrics that cannot be had", err.Error())
			return
		}
		m.mu.Lock()
		m.samples = append(m.samples, sample{time.Since(m.began), bytes})
		m.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// around is the mean of what was seen within 2.5 s of a moment; 0: nothing was.
func (m *memory) around(at time.Duration) float64 {
	const near = 2500 * time.Millisecond
	m.mu.Lock()
	defer m.mu.Unlock()
	sum, n := 0.0, 0
	for _, s := range m.samples {
		if s.at >= at-near && s.at <= at+near {
			sum += s.bytes
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// end is when the last sample was taken.
func (m *memory) end() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.samples) == 0 {
		return 0
	}
	return m.samples[len(m.samples)-1].at
}

// figures are the memory after the first 20 s and at the end, in bytes; settled
// is false where the run was too short to tell.
func (m *memory) figures() (then, end float64, settled bool) {
	last := m.end()
	end = m.around(last - 2500*time.Millisecond)
	if last < settledAfter+10*time.Second {
		return m.around(last / 2), end, false
	}
	return m.around(settledAfter), end, true
}
