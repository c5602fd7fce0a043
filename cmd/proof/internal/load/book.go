package load

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"deepwork/session/workflow"
)

// A book has every save of every job file: the judge's memory of what was ever
// written, and when a call could have read it.
type book struct {
	group   int
	servers int

	mu     sync.Mutex
	files  [jobCount][]*savedFile // job.yml, then the instructions of each step in order
	rough  [jobCount]time.Time    // when the rough save that goes on began; zero: there is none
	heldUp [jobCount][]interval   // rough saves that took too long
}

// An interval is from when to when something was so.
type interval struct{ from, to time.Time }

// awayFor is how long a job.yml may be away, or half-written, without harm. Servers
// wait for half a second (catalog.Options.Grace).
const awayFor = 400 * time.Millisecond

// A savedFile is one file and its saves; save number n is saves[n-1].
type savedFile struct {
	saves []save
	ended int   // the last save that has ended
	seen  []int // by server: the newest save that a reply of it was made of
}

// A save is one writing of a file.
type save struct {
	base  int    // the save that wrote all of it; another one has appended to it
	hash  string // hex SHA-256 of the file
	rough bool   // while it went on the file was away, or had half of its content
}

func newBook(group, servers int) *book {
	b := &book{group: group, servers: servers}
	for i := range b.files {
		for range 1 + len(stepIDs(group)) {
			b.files[i] = append(b.files[i], &savedFile{seen: make([]int, servers)})
		}
	}
	return b
}

// begin notes a save before anything of it is written, and gives its number.
func (b *book) begin(job, file int, base int, content func(number int) string, rough bool) (number int, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[job][file]
	number = len(f.saves) + 1
	text = content(number)
	sum := sha256.Sum256([]byte(text))
	if base == 0 {
		base = number
	}
	f.saves = append(f.saves, save{base, hex.EncodeToString(sum[:]), rough})
	if rough {
		b.rough[job] = time.Now()
	}
	return number, text
}

// end notes that a save is over: whoever calls from now on must see it.
func (b *book) end(job, file int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[job][file]
	f.ended = len(f.saves)
	if from := b.rough[job]; file == 0 && !from.IsZero() {
		b.rough[job] = time.Time{}
		if now := time.Now(); now.Sub(from) > awayFor {
			b.heldUp[job] = append(b.heldUp[job], interval{from, now})
		}
	}
}

// wasAway tells whether the machine has held up the editor in the middle of a rough
// save, for longer than servers wait, while a call went on: then the job was not there.
func (b *book) wasAway(m mark) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from := b.rough[m.job]; !from.IsZero() && time.Since(from) > awayFor {
		return true
	}
	return slices.ContainsFunc(b.heldUp[m.job], func(i interval) bool { return i.to.After(m.at) })
}

// A mark is what a call that begins now must see at least of a job's files.
type mark struct {
	job    int
	server int
	at     time.Time
	ended  []int // the last save that had ended
	seen   []int // the newest one that the server had told of
}

func (b *book) mark(job, server int) mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := mark{job: job, server: server, at: time.Now()}
	for _, f := range b.files[job] {
		m.ended = append(m.ended, f.ended)
		m.seen = append(m.seen, f.seen[server])
	}
	return m
}

// served checks that a reply may be made of this save of a file. It is never
// older than what the server had served before, nor than the last one that had
// ended when the call began. Of the latter there is an exception, where no server
// can do better: a later save may have taken the content away meanwhile.
func (b *book) served(m mark, file, number int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.servedOne(m, file, number, number)
}

// servedOne is served, under the lock, for a reply that may be of any of the saves
// from oldest to number: that it was made of the oldest is all that is known.
func (b *book) servedOne(m mark, file, oldest, number int) error {
	f := b.files[m.job][file]
	name := b.fileName(m.job, file)
	if number < 1 || number > len(f.saves) {
		return fmt.Errorf("%s: save %d was never written, of %d", name, number, len(f.saves))
	}
	if number < m.seen[file] {
		return fmt.Errorf("%s: save %d was served to a call that began after save %d had been served", name, number, m.seen[file])
	}
	if number < m.ended[file] && !slices.ContainsFunc(f.saves[m.ended[file]:], func(s save) bool { return s.rough }) {
		return fmt.Errorf("%s: save %d was served to a call that began after save %d had ended", name, number, m.ended[file])
	}
	f.seen[m.server] = max(f.seen[m.server], oldest)
	return nil
}

func (b *book) fileName(job, file int) string {
	if file == 0 {
		return jobName(job) + "/job.yml"
	}
	return jobName(job) + "/" + stepIDs(b.group)[file-1] + ".md"
}

// step checks that what a reply says of a step is of one save, and one that may
// be served. It returns the save of job.yml.
func (b *book) step(m mark, info *workflow.StepInfo, stepID string) (number int, err error) {
	job := jobName(m.job)
	base, last, ok := parseInfo(job, info.CommonJobInfo)
	if !ok {
		return 0, fmt.Errorf("%s: the common info is of no save: %.300q", job, info.CommonJobInfo)
	}
	if info.StepID != stepID {
		return 0, fmt.Errorf("%s: it describes step %q, not %q", job, info.StepID, stepID)
	}
	if err := b.served(m, 0, last); err != nil {
		return 0, err
	}
	b.mu.Lock()
	written := b.files[m.job][0].saves[last-1]
	b.mu.Unlock()
	output, _ := outputOf(stepID)
	switch {
	case written.base != base:
		return 0, fmt.Errorf("%s: the common info mixes saves: %.300q", job, info.CommonJobInfo)
	case len(info.ExpectedOutputs) != 1 || info.ExpectedOutputs[0].Name != output || info.ExpectedOutputs[0].Description != outputText(stepID, base):
		return 0, fmt.Errorf("%s: the outputs of %s are not those of save %d: %+v", job, stepID, base, info.ExpectedOutputs)
	}
	text, ok := parseInstructions(job, stepID, info.Instructions)
	if !ok {
		return 0, fmt.Errorf("%s: the instructions of %s are of no save: %.300q", job, stepID, info.Instructions)
	}
	for i, id := range stepIDs(b.group) {
		if id == stepID {
			return last, b.served(m, 1+i, text)
		}
	}
	return 0, fmt.Errorf("%s: it has no step %q", job, stepID)
}

// saveOf finds the save of a job.yml by its hash; 0: it was never written.
func (b *book) saveOf(job int, hash string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range b.files[job][0].saves {
		if s.hash == hash {
			return i + 1
		}
	}
	return 0
}

// total is how many saves there were.
func (b *book) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, files := range b.files {
		for _, f := range files {
			n += len(f.saves)
		}
	}
	return n
}

// listed checks a job's summary, which is of a save that wrote all of the file.
func (b *book) listed(m mark, summary string) error {
	base := 0
	if n, err := fmt.Sscanf(summary, "Load "+jobName(m.job)+", save %d", &base); n != 1 || err != nil || summary != summaryText(jobName(m.job), base) {
		return fmt.Errorf("%s: the summary is of no save: %q", jobName(m.job), summary)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	last := base // the newest of the saves that have this summary; it may not even be written
	for f := b.files[m.job][0]; last < len(f.saves) && f.saves[last].base == base; {
		last++
	}
	return b.servedOne(m, 0, base, last)
}
