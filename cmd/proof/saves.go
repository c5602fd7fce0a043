package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

const wrongDefinition = "a wrong definition"

// saves are all saves of the job.yml of all jobs, numbered from 1 on: what was ever
// written, and when a call could have read it. Its methods may be called by many
// goroutines.
type saves struct {
	mu           sync.Mutex
	begun, ended [jobCount]int  // the newest saves
	hashes       map[string]int // the saves, by hex SHA-256
}

// begin records a save before it is written, and returns its number and the text to write.
func (b *saves) begin(job int) (number int, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[job]++
	number = b.begun[job]
	text = jobText(jobName(job), number)
	sum := sha256.Sum256([]byte(text))
	b.hashes[hex.EncodeToString(sum[:])] = number
	return number, text
}

// end records the end of a save: later calls must see it.
func (b *saves) end(job int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[job] = b.begun[job]
}

// last returns the last save of a job that has ended, which a call that begins now must
// see at least.
func (b *saves) last(job int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended[job]
}

// step checks that what a reply says of a step is of one save of a job, which it returns,
// and of none older than the last one that had ended when the call began.
func (b *saves) step(job, last int, info stepInfo) (save int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, save := jobName(job), saveIn(info.Info)
	switch {
	case info.Info != infoText(save):
		err = fmt.Errorf("%s: the common info is of no save: %.300q", name, info.Info)
	case len(info.Outputs) != 2 || info.Outputs[0].Name != "report" || info.Outputs[0].Description != outputText(info.Step, save):
		err = fmt.Errorf("%s: the outputs of %s are not those of save %d: %+v", name, info.Step, save, info.Outputs)
	case !isInstructions(name, info.Step, info.Instructions):
		err = fmt.Errorf("%s: the instructions of %s are other ones: %.300q", name, info.Step, info.Instructions)
	case save < max(last, 1) || save > b.begun[job]:
		err = fmt.Errorf("%s: save %d was served to a call that began after save %d had ended, of %d", name, save, last, b.begun[job])
	}
	return save, err
}

// of finds the save of a job.yml by its hash; 0 means never written.
func (b *saves) of(hash string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hashes[hash]
}

// total returns the number of saves.
func (b *saves) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hashes)
}
