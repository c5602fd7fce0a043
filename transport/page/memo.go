package page

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"deepwork/session"
)

// A rendered is a page as it is sent.
type rendered struct {
	status int // 0 means 200
	body   []byte
	at     uint64 // the number of the feed before it was made
	on     []string
	fresh  bool // it is not kept

	compress   sync.Once
	compressed []byte
}

func newRendered(body []byte, at uint64, on []string) *rendered {
	return &rendered{body: body, at: at, on: on}
}

// gzipMin is the size from which pages are compressed.
const gzipMin = 4 << 10

func (p *rendered) serve(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Vary", "Cookie, Accept-Encoding")
	if p.status != 0 {
		w.WriteHeader(p.status)
		_, _ = w.Write(p.body)
		return
	}
	if len(p.body) >= gzipMin && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		head.Set("Content-Encoding", "gzip")
		p.compress.Do(func() {
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
			_, _ = z.Write(p.body)
			_ = z.Close()
			p.compressed = b.Bytes()
		})
		head.Set("Content-Length", strconv.Itoa(len(p.compressed)))
		_, _ = w.Write(p.compressed)
		return
	}
	head.Set("Content-Length", strconv.Itoa(len(p.body)))
	_, _ = w.Write(p.body)
}

// A memoKey identifies a page for callers that see the same.
type memoKey struct {
	identity, group string
	owner           bool
	rights          session.Rights
	loggedIn        bool
	url             string
}

// A memo keeps rendered pages. The zero value is ready to use.
type memo struct {
	mu    sync.Mutex
	pages map[memoKey]*entry
}

type entry struct {
	mu   sync.Mutex // held while it is rendered
	page *rendered
}

// maxPages is how many pages are kept.
const maxPages = 200

// get returns a page, which make renders if it is not kept or one of its topics has changed since.
// Callers that ask for the same page at the same time wait for one rendering. With told, the page may be
// as of the last telling of the feed.
func (m *memo) get(k memoKey, f *feed, told bool, make func() (*rendered, error)) (*rendered, error) {
	e := m.entry(k)
	e.mu.Lock()
	defer e.mu.Unlock()
	if told && e.page != nil && e.page.at >= f.lately() {
		return e.page, nil
	}
	if e.page != nil && !e.page.fresh {
		if last, _ := f.changed(e.page.on); last <= e.page.at {
			return e.page, nil
		}
	}
	p, err := make()
	if err != nil {
		return nil, err
	}
	e.page = p
	return p, nil
}

func (m *memo) entry(k memoKey) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil || len(m.pages) >= maxPages && m.pages[k] == nil {
		m.pages = make(map[memoKey]*entry)
	}
	e := m.pages[k]
	if e == nil {
		e = new(entry)
		m.pages[k] = e
	}
	return e
}
