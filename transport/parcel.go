package transport

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
)

// parcelFrom is how large a result is, in bytes, before it travels as a parcel.
const parcelFrom = 1 << 10

// parcelMark begins what stands for a parcel; no tool's result begins so.
const parcelMark = `{"deepwork/parcel":"`

// parcels carry large results past the SDK, which would scan and copy every
// byte twice more on its way from the tool to the line that is written: a
// small object takes their place, and is replaced as the line is put together.
type parcels struct {
	mu   sync.Mutex
	last uint64
	held map[string][]byte // by number; of a connection that broke some remain, and go with it
}

// pack keeps the data, valid JSON on one line, and returns what stands for it.
func (p *parcels) pack(data []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	n := strconv.FormatUint(p.last, 10)
	if p.held == nil {
		p.held = map[string][]byte{}
	}
	p.held[n] = data
	return []byte(parcelMark + n + `"}`)
}

// unpack returns the data a result stands for, once, or the result itself.
func (p *parcels) unpack(result json.RawMessage) json.RawMessage {
	n, ok := bytes.CutPrefix(result, []byte(parcelMark))
	if !ok {
		return result
	}
	key := string(bytes.TrimSuffix(n, []byte(`"}`)))
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := p.held[key]
	if !ok {
		return result
	}
	delete(p.held, key)
	return data
}
