package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"
)

const wrongDefinition = "a wrong definition"

// saves are all saves of all files of the jobs: what was ever written, and when a call
// could have read it. Its methods may be called by many goroutines.
type saves struct {
	group int
	names []string // of the files of each job

	mu     sync.Mutex
	files  [jobCount][]*savedFile
	rough  [jobCount]time.Time // when the rough save that goes on began; zero: none does
	heldUp [jobCount]time.Time // when the last rough save that took too long has ended
}

// awayFor is how long a job.yml may be away, or half-written, without harm. Servers
// wait for half a second.
const awayFor = 400 * time.Millisecond

// A savedFile is one file and its saves; save number n is saves[n-1].
type savedFile struct {
	saves []save
	ended int         // the last save that has ended
	seen  map[int]int // by server: the newest save that a reply of it was made of
}

// A save is one writing of a file.
type save struct {
	base  int    // the save that wrote all of it; another one has appended to it
	hash  string // hex SHA-256 of the file
	rough bool   // while it went on the file was away, or had half of its content
}

func newSaves(group int) *saves {
	b := &saves{group: group, names: fileNames(group)}
	for i := range b.files {
		for range b.names {
			b.files[i] = append(b.files[i], &savedFile{seen: map[int]int{}})
		}
	}
	return b
}

// begin records a save before anything of it is written, and returns its number and the
// text to write. With more, it appends to the file.
func (b *saves) begin(job, file int, more, rough bool) (number int, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[job][file]
	number = len(f.saves) + 1
	base := number
	if more {
		base = f.saves[number-2].base
	}
	if file == 0 {
		text = jobText(jobName(job), b.group, base, number)
	} else {
		text = instructionsText(jobName(job), stepNames[file-1], number)
	}
	sum := sha256.Sum256([]byte(text))
	f.saves = append(f.saves, save{base, hex.EncodeToString(sum[:]), rough})
	if rough && file == 0 {
		b.rough[job] = time.Now()
	}
	return number, text
}

// end records that a save is over: who calls from now on must see it.
func (b *saves) end(job, file int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[job][file]
	f.ended = len(f.saves)
	if from := b.rough[job]; file == 0 && !from.IsZero() {
		b.rough[job] = time.Time{}
		if time.Since(from) > awayFor {
			b.heldUp[job] = time.Now()
		}
	}
}

// A mark is what a call that begins now must see at least of a job's files.
type mark struct {
	job, server int
	at          time.Time
	ended, seen []int // by file: the last save that had ended, the newest that the server had told of
}

func (b *saves) mark(job, server int) mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := mark{job: job, server: server, at: time.Now()}
	for _, f := range b.files[job] {
		m.ended, m.seen = append(m.ended, f.ended), append(m.seen, f.seen[server])
	}
	return m
}

// wasAway reports whether the machine has held up the editor in the middle of a rough
// save, for longer than servers wait, while a call went on: then the job was not there.
func (b *saves) wasAway(m mark) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.rough[m.job]
	return !from.IsZero() && time.Since(from) > awayFor || b.heldUp[m.job].After(m.at)
}

// served checks that a reply may be made of one of the saves of a file from oldest to
// number; that it was made of the oldest is all that is known. It is never older than
// what the server had served before, nor than the last one that had ended when the call
// began. Of the latter there is an exception, where no server can do better: a later save
// may have taken the content away meanwhile.
func (b *saves) served(m mark, file, oldest, number int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[m.job][file]
	where := jobName(m.job) + "/" + b.names[file]
	if number < 1 || number > len(f.saves) {
		return fmt.Errorf("%s: save %d was never written, of %d", where, number, len(f.saves))
	}
	if number < m.seen[file] {
		return fmt.Errorf("%s: save %d was served to a call that began after save %d had been served", where, number, m.seen[file])
	}
	if number < m.ended[file] && !slices.ContainsFunc(f.saves[m.ended[file]:], func(s save) bool { return s.rough }) {
		return fmt.Errorf("%s: save %d was served to a call that began after save %d had ended", where, number, m.ended[file])
	}
	f.seen[m.server] = max(f.seen[m.server], oldest)
	return nil
}

// step checks that what a reply says of a step is of one save, and one that may be
// served. It returns the save of job.yml.
func (b *saves) step(m mark, info stepInfo) (save int, err error) {
	job := jobName(m.job)
	base, last, ok := parseInfo(info.Info)
	if !ok {
		return 0, fmt.Errorf("%s: the common info is of no save: %.300q", job, info.Info)
	}
	if err := b.served(m, 0, last, last); err != nil {
		return 0, err
	}
	b.mu.Lock()
	written := b.files[m.job][0].saves[last-1]
	b.mu.Unlock()
	switch {
	case written.base != base:
		return 0, fmt.Errorf("%s: the common info mixes saves: %.300q", job, info.Info)
	case len(info.Outputs) != 2 || info.Outputs[0].Name != "report" || info.Outputs[0].Description != outputText(info.Step, base):
		return 0, fmt.Errorf("%s: the outputs of %s are not those of save %d: %+v", job, info.Step, base, info.Outputs)
	}
	text, ok := parseInstructions(job, info.Step, info.Instructions)
	if !ok {
		return 0, fmt.Errorf("%s: the instructions of %s are of no save: %.300q", job, info.Step, info.Instructions)
	}
	return last, b.served(m, 1+number(info.Step), text, text)
}

// listed checks a job's summary, which is of a save that wrote all of the file.
func (b *saves) listed(m mark, summary string) error {
	base := 0
	if n, err := fmt.Sscanf(summary, "Job "+jobName(m.job)+", save %d", &base); n != 1 || err != nil || summary != summaryText(jobName(m.job), base) {
		return fmt.Errorf("%s: the summary is of no save: %q", jobName(m.job), summary)
	}
	b.mu.Lock()
	last := base // the newest of the saves that have this summary; it may not even be written
	for f := b.files[m.job][0]; last < len(f.saves) && f.saves[last].base == base; {
		last++
	}
	b.mu.Unlock()
	return b.served(m, 0, base, last)
}

// of finds the save of a job.yml by its hash; 0: it was never written.
func (b *saves) of(job, hash string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := jobIndex(job)
	if i < 0 {
		return 0
	}
	return 1 + slices.IndexFunc(b.files[i][0].saves, func(s save) bool { return s.hash == hash })
}

// total is how many saves there were.
func (b *saves) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, files := range b.files {
		for _, f := range files {
			n += len(f.saves)
		}
	}
	return n
}
