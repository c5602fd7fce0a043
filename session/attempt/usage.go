package attempt

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/store"
)

// usageOf returns what an execution used, by the prices of now; nil if its agent reported nothing.
func (e *Engine) usageOf(ctx context.Context, b store.Board, attempt, executor string, u *transcript.Usage) (*task.Usage, error) {
	if u == nil {
		return nil, nil
	}
	var prices map[string]config.Price
	if cfg, err := e.Config(ctx); err == nil { // else only what agents report is known
		prices = cfg.Prices
	}
	var before map[string]transcript.Tokens
	if u.Thread != "" {
		all, err := b.Used(ctx, attempt)
		if err != nil {
			return nil, err
		}
		for _, earlier := range all {
			if earlier.Thread == u.Thread && earlier.Totals != nil {
				before = nil
				_ = json.Unmarshal(earlier.Totals, &before) // of a damaged row nothing is known
			}
		}
	}
	c := transcript.CostOf(u, before, prices, executor)
	used := &task.Usage{InputTokens: c.Tokens.Input, CachedTokens: c.Tokens.CacheRead + c.Tokens.CacheWrite, OutputTokens: c.Tokens.Output, Turns: c.Turns, Thread: u.Thread}
	if c.USD != nil {
		used.MicroUSD = new(board.MicroUSD(*c.USD))
	}
	if u.Thread != "" && !u.Partial {
		totals := u.Models
		if totals == nil {
			totals = before
		}
		used.Totals, _ = json.Marshal(totals) // numbers
	}
	return used, nil
}

// A provider's limit, as the agents report it: "Claude AI usage limit reached|1767225600", "You've hit your
// session limit · resets 3pm", "try again in 2 days 3 hours 12 minutes", "rate_limit_error", "429 Too Many Requests".
var (
	limitWords   = regexp.MustCompile(`(?i)usage limit|rate.?limit|session limit|weekly limit|hit your limit|limit reached|too many requests|\b429\b|quota exceeded|resource_exhausted|overloaded`)
	limitEpoch   = regexp.MustCompile(`\|(\d{10})\b`)
	limitIn      = regexp.MustCompile(`(?i)(?:try again|retry|resets?)(?: after)? in ((?:\d+(?:\.\d+)? ?[a-z]+[, ]*(?:and )?)+)`)
	limitPart    = regexp.MustCompile(`(?i)(\d+(?:\.\d+)?) ?(d|h|m|s)[a-z]*`)
	limitAt      = regexp.MustCompile(`(?i)(?:try again|resets?)(?: at)? (\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d))`)
	limitClock   = regexp.MustCompile(`(?i)(?:try again at|resets?(?: at)?) (\d{1,2})(?::(\d\d))? ?(am|pm)`)
	limitSeconds = regexp.MustCompile(`(?i)retry.after["']?[:=] ?(\d+)`)
)

// maxLimitWait is the longest wait for a limit that is believed.
const maxLimitWait = 8 * 24 * time.Hour

// limitOf returns until when to wait if what an agent said last is that a limit of its provider is
// reached: a time in the past if it does not say. nil means that it says something else.
func limitOf(now time.Time, said string) *time.Time {
	if said = said[max(0, len(said)-4000):]; !limitWords.MatchString(said) {
		return nil
	}
	until := now
	if m := limitEpoch.FindStringSubmatch(said); m != nil {
		seconds, _ := strconv.ParseInt(m[1], 10, 64)
		until = time.Unix(seconds, 0)
	} else if m := limitAt.FindStringSubmatch(said); m != nil {
		if at, err := time.Parse(time.RFC3339, m[1]); err == nil {
			until = at
		}
	} else if m := limitSeconds.FindStringSubmatch(said); m != nil {
		seconds, _ := strconv.ParseInt(m[1], 10, 32)
		until = now.Add(time.Duration(seconds) * time.Second)
	} else if m := limitIn.FindStringSubmatch(said); m != nil {
		units := map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second}
		for _, part := range limitPart.FindAllStringSubmatch(m[1], -1) {
			n, _ := strconv.ParseFloat(part[1], 64)
			until = until.Add(time.Duration(min(n, 1e6) * float64(units[strings.ToLower(part[2])])))
		}
	} else if m := limitClock.FindStringSubmatch(said); m != nil {
		hour, _ := strconv.Atoi(m[1])
		minute, _ := strconv.Atoi(m[2])
		if hour %= 12; strings.EqualFold(m[3], "pm") {
			hour += 12
		}
		y, month, d := now.Date()
		if until = time.Date(y, month, d, hour, minute, 0, 0, now.Location()); until.Before(now) {
			until = until.AddDate(0, 0, 1)
		}
	}
	if until.After(now.Add(maxLimitWait)) {
		until = now
	}
	return &until
}

// firstLimitWait and lastLimitWait space the tries after a limit that does not say until when it is.
const firstLimitWait, lastLimitWait = time.Minute, 30 * time.Minute

// LimitOver returns when a leader starts an agent again for a step whose last one was ended by a limit of
// its provider, or the zero time. The executions are those for the step, the newest first.
func LimitOver(of []task.Execution) time.Time {
	if len(of) == 0 || of[0].LimitedUntil == nil || of[0].EndedAt == nil {
		return time.Time{}
	}
	limits := 0
	for _, x := range of {
		if x.LimitedUntil == nil {
			break
		}
		limits++
	}
	pause := min(firstLimitWait<<min(limits-1, 10), lastLimitWait)
	until, earliest := *of[0].LimitedUntil, of[0].EndedAt.Add(pause)
	if until.After(*of[0].EndedAt) && limits == 1 { // it said until when
		return until
	}
	if until.After(earliest) {
		return until
	}
	return earliest
}
