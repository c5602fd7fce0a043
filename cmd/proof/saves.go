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
	names []string // of the files of each job

	mu     sync.Mutex
	files  [jobCount][]savedFile
	hashes map[string]int      // the saves of the job.yml files, by hex SHA-256
	rough  [jobCount]time.Time // when the rough save of job.yml that goes on began, or zero
	heldUp [jobCount]time.Time // when the last rough save that took too long has ended
}

// awayFor is how long a job.yml may be away, or half-written, without harm. Servers
// wait for half a second.
const awayFor = 400 * time.Millisecond

// A savedFile holds the numbers of the newest saves of a file, from 1 on: that has begun,
// that has ended, and that is rough, so that the file is away for a moment, or has half
// of its content.
type savedFile struct{ begun, ended, rough int }

func newSaves() *saves {
	b := &saves{names: []string{"job.yml"}, hashes: map[string]int{}}
	for _, step := range stepNames {
		b.names = append(b.names, step+".md")
	}
	for i := range b.files {
		b.files[i] = make([]savedFile, len(b.names))
	}
	return b
}

// begin records a save before anything of it is written, and returns its number and the
// text to write.
func (b *saves) begin(job, file int, rough bool) (number int, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &b.files[job][file]
	f.begun++
	if rough {
		f.rough = f.begun
	}
	if file > 0 {
		return f.begun, instructionsText(jobName(job), stepNames[file-1], f.begun)
	}
	text = jobText(jobName(job), f.begun)
	sum := sha256.Sum256([]byte(text))
	b.hashes[hex.EncodeToString(sum[:])] = f.begun
	if rough {
		b.rough[job] = time.Now()
	}
	return f.begun, text
}

// end records that a save is over: a call from now on must see it.
func (b *saves) end(job, file int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[job][file].ended = b.files[job][file].begun
	if file > 0 {
		return
	}
	if from := b.rough[job]; !from.IsZero() && time.Since(from) > awayFor {
		b.heldUp[job] = time.Now()
	}
	b.rough[job] = time.Time{}
}

// A mark is what a call that begins now must see at least of a job's files.
type mark struct {
	job   int
	at    time.Time
	files []savedFile
}

func (b *saves) mark(job int) mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return mark{job, time.Now(), slices.Clone(b.files[job])}
}

// wasAway reports whether the machine has held up the editor in the middle of a rough
// save, for longer than servers wait, while a call went on: then the job was not there.
func (b *saves) wasAway(m mark) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.rough[m.job]
	return !from.IsZero() && time.Since(from) > awayFor || b.heldUp[m.job].After(m.at)
}

// served checks that a reply may be made of a save of a file: it is not older than the
// last one that had ended when the call began, unless a later save may have taken the
// content away meanwhile.
func (b *saves) served(m mark, file, number int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ended := b.files[m.job][file], m.files[file].ended
	if number < 1 || number > f.begun || number < ended && f.rough <= ended {
		return fmt.Errorf("%s/%s: save %d was served to a call that began after save %d had ended, of %d", jobName(m.job), b.names[file], number, ended, f.begun)
	}
	return nil
}

// step checks that what a reply says of a step is of one save, and one that may be
// served. It returns the save of job.yml.
func (b *saves) step(m mark, info stepInfo) (save int, err error) {
	job := jobName(m.job)
	save, text := saveIn(info.Info), saveIn(info.Instructions)
	switch {
	case info.Info != infoText(save):
		return 0, fmt.Errorf("%s: the common info is of no save: %.300q", job, info.Info)
	case len(info.Outputs) != 2 || info.Outputs[0].Name != "report" || info.Outputs[0].Description != outputText(info.Step, save):
		return 0, fmt.Errorf("%s: the outputs of %s are not those of save %d: %+v", job, info.Step, save, info.Outputs)
	case !isInstructions(job, info.Step, text, info.Instructions):
		return 0, fmt.Errorf("%s: the instructions of %s are of no save: %.300q", job, info.Step, info.Instructions)
	}
	if err := b.served(m, 0, save); err != nil {
		return 0, err
	}
	return save, b.served(m, 1+number(info.Step), text)
}

// of finds the save of a job.yml by its hash; 0 means that it was never written.
func (b *saves) of(hash string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hashes[hash]
}

// total is how many saves there were.
func (b *saves) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, files := range b.files {
		for _, f := range files {
			n += f.begun
		}
	}
	return n
}
