package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// logFlags are the flags of a command that logs.
type logFlags struct {
	level  string
	format string
	file   string
}

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

func (f *logFlags) register(cmd *cobra.Command, level string) {
	flags := cmd.Flags()
	flags.StringVar(&f.level, "log-level", level, "lowest level that is logged: "+strings.Join(logLevels, ", "))
	flags.StringVar(&f.format, "log-format", "text", "text or json")
	flags.StringVar(&f.file, "log-file", "", "append the log to this `file` instead of writing it to stderr")
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(logLevels, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions(logFormats, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses values that are not allowed.
func (f *logFlags) check(cmd *cobra.Command) error {
	if !slices.Contains(logLevels, f.level) {
		return usagef(cmd, "--log-level %q is not one of %s", f.level, strings.Join(logLevels, ", "))
	}
	if !slices.Contains(logFormats, f.format) {
		return usagef(cmd, "--log-format %q is not one of %s", f.format, strings.Join(logFormats, ", "))
	}
	return nil
}

// open returns the logger. It writes to stderr, or appends to the file, which only its owner may
// read, since it reveals what people work on. close ends it.
func (f *logFlags) open(stderr io.Writer) (logger *slog.Logger, close func() error, err error) {
	w, close := stderr, func() error { return nil }
	if f.file != "" {
		file, err := os.OpenFile(f.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the log file: %w", err)
		}
		w, close = file, file.Close
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, nil, fmt.Errorf("--log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), close, nil
	}
	return slog.New(slog.NewTextHandler(w, options)), close, nil
}
