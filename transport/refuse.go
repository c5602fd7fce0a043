package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
)

const (
	// errorChars is how long the text of a refused call may be.
	errorChars = 8000
	// errorMetaBytes bounds the values for programs beside it.
	errorMetaBytes = 16 << 10
	// errorMeta is the key in `_meta` under which they stand.
	errorMeta = "deepwork/error"
)

// refused makes the result of a call that was refused: one text block that
// begins with the kind, and the code for programs in `_meta`. It has no
// structured content, since clients check that against the output schema.
func refused(e *session.Error) *mcp.CallToolResult {
	meta := map[string]any{}
	for k, v := range e.Details {
		meta[k] = v
	}
	if data, err := json.Marshal(meta); err != nil || len(data) > errorMetaBytes {
		meta = map[string]any{"details_omitted": true}
	}
	meta["type"], meta["code"] = string(e.Kind), e.Code
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{errorMeta: meta},
		Content: []mcp.Content{&mcp.TextContent{Text: bounded(e.Error(), errorChars)}},
		IsError: true,
	}
}

// broken is the result of a call that broke on our side.
func (s *Server) broken(tool string) *mcp.CallToolResult {
	return refused(session.Wrong("internal",
		"%s broke on the server's side, through no fault of your arguments; the server's log has the details. What to do now: %s", tool, s.again(tool)))
}

// failed makes the result of a call whose handler returned an error, and the
// outcome for the log.
func (s *Server) failed(ctx context.Context, tool string, err error) (*mcp.CallToolResult, string, error) {
	if e, ok := errors.AsType[*session.Error](err); ok {
		if e.Err != nil {
			s.logger.LogAttrs(ctx, slog.LevelWarn, "call refused", slog.String("tool", tool), slog.String("code", e.Code), slog.Any("error", e.Err))
		}
		return refused(e), e.Code, nil
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		if errors.Is(context.Cause(ctx), errStopping) {
			return refused(session.NotNow("stopping", "The server is stopping, and %s was cut short. "+
				"What was acknowledged is safe. Connect again; %s", tool, s.again(tool))), "stopping", nil
		}
		return nil, "cancelled", context.Canceled
	}
	s.logger.LogAttrs(ctx, slog.LevelError, "call failed", slog.String("tool", tool), slog.Any("error", err))
	return s.broken(tool), "internal", nil
}

// bounded cuts a text to max characters: what is cut is the middle, since the
// beginning says what is wrong and the end what to do.
func bounded(text string, max int) string {
	n := utf8.RuneCountInString(text)
	if n <= max {
		return text
	}
	note := func(cut int) string { return fmt.Sprintf("\n[… %d characters cut …]\n", cut) }
	keep := max - utf8.RuneCountInString(note(n))
	runes := []rune(text)
	head := keep * 3 / 4
	tail := keep - head
	return string(runes[:head]) + note(n-keep) + string(runes[n-tail:])
}

// clip cuts a text to max characters and shows that it did.
func clip(text string, max int) string {
	if utf8.RuneCountInString(text) <= max {
		return text
	}
	return string([]rune(text)[:max-1]) + "…"
}
