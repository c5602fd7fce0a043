package runner

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"deepwork/session/attempt/transcript"
)

// An exit has the last lines on stderr, without colors, and the usage that an agent reports, also in a
// line that is logged in pieces.
func TestSummary(t *testing.T) {
	s := newSummary()
	for i := range 100_000 {
		s.line(Stderr, fmt.Appendf(nil, "warning %d", i))
	}
	s.line(Stderr, []byte("\x1b[31mno network\x1b[0m"))
	result := `{"type":"result","subtype":"success","result":"` + strings.Repeat("x", 2*MaxLine) + `","total_cost_usd":0.5,"num_turns":2,"modelUsage":{"m":{"inputTokens":3,"outputTokens":4}}}`
	for ; len(result) > MaxLine; result = result[MaxLine:] {
		s.line(Stdout, []byte(result[:MaxLine]))
	}
	s.line(Stdout, []byte(result))
	var e Exit
	s.put(&e)
	if lines := strings.Split(e.Stderr, "\n"); len(e.Stderr) > maxStderr || len(lines) < 10 || lines[len(lines)-2] != "warning 99999" || lines[len(lines)-1] != "no network" {
		t.Errorf("%q", e.Stderr)
	}
	if want := (&transcript.Usage{Models: map[string]transcript.Tokens{"m": {Input: 3, Output: 4}}, USD: new(0.5), Turns: 2}); !reflect.DeepEqual(e.Usage, want) {
		t.Errorf("%+v", e.Usage)
	}
	if cap(s.stderr) > 8*MaxLine {
		t.Errorf("%d bytes of stderr are kept", cap(s.stderr))
	}
}

// There is room for any exit in the space that is reserved for it.
func TestRoomForAnExit(t *testing.T) {
	s := newSummary()
	s.line(Stderr, []byte(strings.Repeat("<", 2*maxStderr)))
	for i := range 100 {
		s.line(Stdout, fmt.Appendf(nil, `{"type":"assistant","message":{"id":"%d","model":"%d%s","usage":{"input_tokens":%d}}}`, i, i, strings.Repeat("<", 300), 1<<49))
	}
	s.line(Stdout, fmt.Appendf(nil, `{"type":"result","result":%q}`, strings.Repeat("<", MaxFinal)))
	var e Exit
	s.put(&e)
	data, err := json.Marshal(&e)
	if err != nil || len(data) > spareSize || len(data) < spareSize/2 || len(e.Usage.Models) < 16 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
