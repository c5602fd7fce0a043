package source

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"deepwork/catalog/jsontext"
)

// A listing collects the workflows of the pages of one query.
type listing struct {
	source    string
	tool      string                         // the tool that the pages that are added are made of, or ""
	known     map[[sha256.Size]byte]*offered // workflows of the previous query, by the digest of their JSON
	workflows []*offered
	ids       map[string]bool
	pages     pages
	skipped   []Skipped
	more      int // number of further skipped workflows
	bytes     int
	grown     int // bytes by which the listed input schemas exceed the originals
}

// newListing starts a listing. It reuses unchanged workflows of the previous query.
func newListing(source string, before []*offered) *listing {
	l := &listing{
		source: source, known: make(map[[sha256.Size]byte]*offered, len(before)),
		ids: make(map[string]bool, len(before)),
	}
	for _, w := range before {
		l.known[w.sum] = w
	}
	return l
}

// add reads a page: an array of workflows, or an object that holds one under
// "workflows" and may have a nextCursor (seed 003, 6.1). Invalid workflows are
// skipped, with the reason (6.2). It returns the next page's cursor, or "" if the
// listing is complete. An error says that the page is not a list of workflows.
func (l *listing) add(page json.RawMessage) (next string, err error) {
	if l.bytes += len(page); l.bytes > maxQuery {
		return "", fmt.Errorf("its pages have more than %d bytes, which is the limit", maxQuery)
	}

	list, next, err := splitPage(page)
	if err != nil {
		return "", err
	}
	d := json.NewDecoder(bytes.NewReader(list))
	d.Token() // the list's opening bracket; the page is known to be JSON

	had := len(l.workflows)

	// Decode one at a time, so that millions of zeros are never all in memory.
	for i := 1; d.More() && i <= 2*maxWorkflows; i++ {
		if l.grown > maxGrown {
			l.skip("", fmt.Sprintf("the references in its input schemas take more than %d bytes when they are "+
				"written out; the other workflows are left out", maxGrown))
			return "", nil
		}

		var item json.RawMessage
		if err := d.Decode(&item); err != nil {
			return "", fmt.Errorf("its list of workflows is not JSON: %w", err)
		}
		sum := sha256.Sum256(item)
		w := l.known[sum]
		if w == nil || w.tool != l.tool {
			var label string
			if w, label, err = parseWorkflow(l.source, item); err != nil {
				label = cmp.Or(label, fmt.Sprintf("number %d", i))
				l.skip(label, err.Error())
				continue
			}
			w.sum, w.tool = sum, l.tool
		}
		switch {
		case len(l.workflows) >= maxWorkflows:
			l.skip("", fmt.Sprintf("the source offers more than %d workflows; the others are left out", maxWorkflows))
			return "", nil
		case l.ids[w.ID]:
			l.skip(jsontext.Clip(w.ID, 100), "a second workflow of this id; the first is taken")
		default:
			l.ids[w.ID] = true
			l.grown += max(0, len(w.InputSchema)-len(item))
			l.workflows = append(l.workflows, w)
		}
	}
	return next, l.pages.goOn(next, len(l.workflows)-had)
}

// errEndless is the error of a source whose list does not end. Such a source is not queried again soon.
var errEndless = errors.New("its list does not end")

// pages counts the pages of a list that a source returns page by page.
type pages struct {
	cursors map[string]bool
	empty   int // pages without anything new
}

// goOn returns an error instead of asking for the page at a cursor if the list does not end: the cursor was
// used before, there are too many pages, or too many had nothing new. made is how many entries the previous
// page had.
func (p *pages) goOn(cursor string, made int) error {
	if cursor == "" {
		return nil
	}
	if p.cursors == nil {
		p.cursors = make(map[string]bool)
	}
	if made == 0 {
		p.empty++
	}

	switch {
	case p.cursors[cursor]:
		return fmt.Errorf("its nextCursor %q was returned before: its pages repeat", jsontext.Clip(cursor, 80))
	case len(p.cursors) >= maxPages-1:
		return fmt.Errorf("%w: it has more than %d pages", errEndless, maxPages)
	case p.empty > maxEmptyPages:
		return fmt.Errorf("%w: more than %d of its pages have nothing new", errEndless, maxEmptyPages)
	}
	p.cursors[cursor] = true
	return nil
}

// splitPage finds the list of workflows in an answer, and the cursor of the next page.
func splitPage(page json.RawMessage) (list json.RawMessage, next string, err error) {
	if len(page) > maxPage {
		return nil, "", fmt.Errorf("a page of its answer has %d bytes, at most %d are allowed", len(page), maxPage)
	}

	kind := jsontext.Kind(page)
	switch {
	case kind != "array" && kind != "object":
		return nil, "", fmt.Errorf("its answer is not a list of workflows: %q", jsontext.Clip(string(page), 80))
	case !json.Valid(page):
		return nil, "", errors.New("its answer is not JSON")
	case kind == "array":
		return page, "", nil
	}

	var object struct{ Workflows, NextCursor json.RawMessage }
	if err := json.Unmarshal(page, &object); err != nil {
		return nil, "", fmt.Errorf("its answer is not JSON: %w", err)
	}
	if jsontext.Kind(object.Workflows) != "array" {
		return nil, "", errors.New(`its answer is an object without a list "workflows"`)
	}
	if !jsontext.IsNull(object.NextCursor) &&
		(json.Unmarshal(object.NextCursor, &next) != nil || len(next) > maxCursor) {
		return nil, "", fmt.Errorf("its nextCursor is not a text of at most %d bytes", maxCursor)
	}
	return object.Workflows, next, nil
}

func (l *listing) skip(workflow, reason string) {
	if len(l.skipped) >= maxSkipped {
		l.more++
		return
	}
	l.skipped = append(l.skipped, Skipped{Source: l.source, Workflow: workflow, Reason: jsontext.Clip(reason, 500)})
}

// reasons returns why workflows were skipped.
func (l *listing) reasons() []Skipped {
	if l.more == 0 {
		return l.skipped
	}
	return append(l.skipped, Skipped{Source: l.source, Reason: fmt.Sprintf("%d more workflows were left out", l.more)})
}
