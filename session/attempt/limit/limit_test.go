package limit

import (
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// What the programs of executors and the APIs of providers print at a limit, and how long it lasts from now.
func TestField01_LimitsAreRead(t *testing.T) {
	now := time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC)
	at := func(s string) time.Duration { return testkit.Get(time.Parse(time.RFC3339, s)).Must(t).Sub(now) }
	for _, c := range []struct {
		from, said string
		want       time.Duration // 0: it does not say
	}{
		{"Claude Code", "You've hit your session limit · resets 3pm (Europe/Paris)", at("2026-01-01T15:00:00+01:00")},
		{"Claude Code", "You've hit your limit · resets 1:30am (Asia/Dhaka)", at("2026-01-02T01:30:00+06:00")},
		{"Claude Code", "You've hit your weekly limit · resets Jan 4 at 4pm (America/Recife) · progress saved",
			at("2026-01-04T16:00:00-03:00")},
		{"Claude Code", "You've hit your limit · resets Jan 2, 2026, 12pm (UTC)", at("2026-01-02T12:00:00Z")},
		// within the last hour: see below
		{"Claude Code", "You’ve hit your limit for Claude messages. Limits will reset at 9:30 AM.",
			at("2026-01-01T09:30:00Z")},
		{"Claude Code", "Weekly limit reached · resets Jan 2, 7pm (Europe/Moscow) · /upgrade",
			at("2026-01-02T19:00:00+03:00")},
		{"Claude Code", "5-hour limit reached ∙ resets 2pm (Pacific/Auckland)", at("2026-01-02T14:00:00+13:00")},
		{"Claude Code", "Claude AI usage limit reached|1767265200", 30 * time.Minute},
		{"Claude Code", "You've hit your limit\n" +
			`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1767265200}}`,
			30 * time.Minute},
		{"Claude Code", "API Error: Repeated 529 Overloaded errors", 0},
		{"Claude Code", "You've hit your monthly spend limit.", 0},
		{"Codex", "You've hit your usage limit. To get more access now, send a request to your admin or try again at " +
			"12:16 PM.", at("2026-01-01T12:16:00Z")},
		{"Codex", "You've hit your usage limit. Upgrade to Plus to continue using Codex " +
			"(https://chatgpt.com/explore/plus), or try again at Jan 5th, 2026 8:19 PM.", at("2026-01-05T20:19:00Z")},
		{"Codex", "You've hit your usage limit. Upgrade to Pro, or try again in 5 days, 1 hour and 3 minutes.",
			121*time.Hour + 3*time.Minute},
		{"Codex", "You've hit your usage limit. Try again Jan 18.", at("2026-01-18T00:00:00Z")},
		{"Codex", "exceeded retry limit, last status: 429 Too Many Requests, request id: 8f00", 0},
		{"Codex", "Selected model is at capacity. Please try a different model.", 0},
		{"Codex", `{"error":{"type":"usage_limit_reached","resets_in_seconds":13872},"status_code":429}`,
			13872 * time.Second},
		{"Gemini", "You have exhausted your capacity on this model. Your quota will reset after 8h44m7s.",
			8*time.Hour + 44*time.Minute + 7*time.Second},
		{"Gemini", "Attempt 1 failed: You have exhausted your capacity on this model. Your quota will reset after " +
			"5s.. Retrying after 6173ms...", 6173 * time.Millisecond},
		{"Gemini", "You have exhausted your daily quota on this model.", 0},
		{"Gemini", `{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "17.5s"}]}}`,
			17500 * time.Millisecond},
		{"Gemini", "Usage limit reached for gemini-3-pro.\nAccess resets at 4:28 PM GMT+2.",
			at("2026-01-01T16:28:00+02:00")},
		{"Cursor", "Error: You've hit your usage limit\n  Get Cursor Pro\n  chatMessage: *Your usage limits will " +
			"reset when your monthly cycle ends on 1/17/2026.*\n  spendLimits: [50,100,200]",
			at("2026-01-17T00:00:00Z")},
		{"Cursor", "ConnectError: [resource_exhausted] Error", 0},
		{"OpenCode", "5 hour usage limit reached. It will reset in 2 hours 5 minutes. To continue using this model now",
			125 * time.Minute},
		{"OpenCode",
			`{"type":"error","error":{"data":{"statusCode":429,"responseHeaders":{"retry-after":"90"},` +
				`"responseBody":"{\"type\":\"FreeUsageLimitError\"}"}}}`, 90 * time.Second},
		{"OpenCode", `{"data":{"message":"Rate limit exceeded","responseHeaders":{"retry-after-ms":"1500"}}}`,
			1500 * time.Millisecond},
		{"OpenCode", "Free usage exceeded, subscribe to Go\nretrying in 6h16m - attempt #1",
			6*time.Hour + 16*time.Minute},
		{"an API", "Rate limit reached for model-x on tokens per min. Please try again in 857ms. See the limits page.",
			857 * time.Millisecond},
		{"an API", "rate limit reached, please try again in 1.5s", 1500 * time.Millisecond},
		{"an API", "Too many requests. Please wait an hour.", time.Hour},
		{"an API", "429 Too Many Requests\nRetry-After: Thu, 01 Jan 2026 12:00:00 GMT", 90 * time.Minute},
		{"an API", "rate limit: try again at 2026-01-01T12:30:00+01:00", time.Hour},
		{"an API", "Rate limit. Resets 16:22 on 3 Jan", at("2026-01-03T16:22:00Z")},
		{"an API", "rate limit, x-ratelimit-reset: 1767265200000", 30 * time.Minute},
		{"an API", `{"type":"error","error":{"type":"rate_limit_error"}}`, 0},
		{"an API", "usage limit reached|9999999999", 0}, // nobody waits for centuries
		{"an API", "rate limit, resets 25:99 (Nowhere/Land)", 0},
		{"an API", "rate limit, resets Feb 30", 0},
	} {
		until, said := Ends(c.said, now)
		switch {
		case Message(c.said, "") == "":
			t.Errorf("%s: %q is no limit", c.from, c.said)
		case said != (c.want > 0 || c.want < -time.Hour), said && !until.Equal(now.Add(c.want)):
			t.Errorf("%s: %q: until %v, %t, want %v", c.from, c.said, until, said, now.Add(c.want))
		}
	}
}

// A limit counts where a program reports it, and not in what an agent quotes.
func TestField01_WhereLimitsStand(t *testing.T) {
	limited := "You've hit your usage limit. Try again in 2 hours."
	for name, c := range map[string]struct {
		failure, stderr string
		want            bool
	}{
		"an error event":            {limited, "", true},
		"stderr":                    {"", "connecting\n" + limited + "\n", true},
		"an error event of another": {"invalid API key", limited, false},
		"long ago on stderr":        {"", limited + strings.Repeat("\nworking", 20), false},
		"a failing test": {"",
			"--- FAIL: TestRate (0.00s)\n    rate_test.go:12: got status 429 Too Many Requests, want 200\n", false},
		"a failing test of another": {"",
			"FAILED tests/test_api.py::test_limit - AssertionError: assert 429 == 200\nExpected: 200, received " +
				"status 429\n", false},
		"a test and then a limit":  {"", "api_test.go:12: got 429, want 200\n" + limited, true},
		"a number":                 {"", "429 files changed\n", false},
		"another limit":            {"", "Context limit reached: the iteration limit of 500\n", false},
		"nothing":                  {"", "", false},
		"a failure of the agent's": {"", "I give up, try again in 2 hours", false},
		"high demand": {"We're currently experiencing high demand, which may cause temporary errors.",
			"", true},
		"quotes in an error event":   {"the test expected 429 Too Many Requests", "", true}, // its own event
		"an unexpected status of it": {"", "unexpected status 429 Too Many Requests: slow down", true},
	} {
		testkit.Equal(t, Message(c.failure, c.stderr) != "", c.want, "%s", name)
	}
}

// A limit is waited for until the time that was named, or, if none was or that did not help, for longer each time.
func TestField01_PausesGrow(t *testing.T) {
	ended := time.Now()
	limit := func(until time.Duration) task.Execution {
		return task.Execution{
			State:        task.Failed,
			CreatedAt:    ended,
			EndedAt:      &ended,
			LimitedUntil: new(ended.Add(until)),
		}
	}
	unnamed, failed := limit(0), task.Execution{State: task.Failed, EndedAt: &ended}
	many := make([]task.Execution, 50)
	for i := range many {
		many[i] = unnamed
	}
	later := ended.Add(time.Second)
	for name, c := range map[string]struct {
		before []task.Execution // the newest first
		since  time.Time
		want   time.Duration // after the end of the newest
	}{
		"named":     {[]task.Execution{limit(time.Second)}, time.Time{}, time.Second},
		"not named": {[]task.Execution{unnamed}, time.Time{}, time.Minute},
		"named again, too early": {[]task.Execution{limit(time.Second), limit(time.Second)}, time.Time{},
			2 * time.Minute},
		"named again": {[]task.Execution{limit(time.Hour), unnamed}, time.Time{}, time.Hour},
		"three times": {[]task.Execution{unnamed, unnamed, unnamed, failed, unnamed}, time.Time{},
			4 * time.Minute},
		"all the time":              {many, time.Time{}, 30 * time.Minute},
		"named after another error": {[]task.Execution{limit(time.Second), failed, unnamed}, time.Time{}, time.Second},
		"resumed":                   {many, later, 0},
		"resumed, named":            {[]task.Execution{limit(time.Hour), unnamed}, later, time.Hour},
	} {
		got := Over(c.before, c.since)
		testkit.True(t, got.Equal(ended.Add(c.want)), "%s: waits for %v, want %v", name, got.Sub(ended), c.want)
	}
	for name, before := range map[string][]task.Execution{"first": nil, "error": {failed, unnamed}} {
		got := Over(before, time.Time{})
		testkit.True(t, got.IsZero(), "%s: waits until %v", name, got)
	}
}

// Any text is read, and no end is past or too far away. A duration in Go's form is read as it is.
func FuzzEnds(f *testing.F) {
	for _, s := range []string{"resets 3pm (Europe/Paris)", "try again in 8h44m7s", "resets Jan 4 at 4pm",
		"|1767265200", `"retry-after-ms":"15`, "on 1/17/2026 12:00", "until 2026-02-30T99:99Z",
		"again in 99999999999999999999 weeks", "reset at\u202f9\u202fPM UTC+99:99"} {
		f.Add(s, int64(857))
	}

	now := time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, said string, ms int64) {
		until, ok := Ends(said, now)
		testkit.True(t, !ok || until.After(now) && !until.After(now.Add(Max)), "%q: until %v", said, until)
		if d := time.Duration(ms%(24*60*60*1000)) * time.Millisecond; d > 0 {
			until, ok := Ends("Rate limit. Try again in "+d.String()+".", now)
			testkit.True(t, ok && (until.Sub(now)-d).Abs() <= time.Microsecond, "%v: until %v, %t", d, until, ok)
		}
	})
}
