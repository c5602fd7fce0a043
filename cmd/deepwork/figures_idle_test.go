package main

import (
	"database/sql"
	"io"
	"os/exec"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/store/postgres/pgtest"
)

// BenchmarkIdleOnPostgres counts the transactions of a server with the board, over HTTP, to which nobody speaks.
// Wanted: at most 5 per second.
func BenchmarkIdleOnPostgres(b *testing.B) {
	database := pgtest.New(b, "autovacuum=off") // whose transactions are not of the server
	b.Setenv(config.StoreEnv, database.URL())
	b.Setenv(config.ProjectEnv, "shop")
	root := figuresProject(b, 1)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(b, root, args...)
	}
	server := exec.CommandContext(b.Context(), builtProgram(b), "serve", "--path", root, "--port", "0", "--transport", "http", "--toolsets", "workflows,remote,board")
	_, log := startServer(b, server)
	go io.Copy(io.Discard, log)
	db, err := sql.Open("pgx", database.At(""))
	must(b, err)
	defer db.Close()
	commits := func() (n float64) {
		time.Sleep(5 * time.Second) // the database counts what was done before
		must(b, db.QueryRowContext(b.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
		return n
	}
	for b.Loop() {
		began, before := time.Now(), commits()
		time.Sleep(30 * time.Second)
		after := commits()
		b.ReportMetric((after-before)/(time.Since(began)-5*time.Second).Seconds(), "transactions/s(<=5)")
	}
	b.ReportMetric(0, "ns/op")
}
