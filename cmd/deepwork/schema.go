package main

import (
	_ "embed"

	"github.com/spf13/cobra"

	"deepwork/catalog/job"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [run]",
		Short: "Print the JSON Schema of job.yml, or of the events of a run",
		Long: `Print the JSON Schema (draft 2020-12) of job.yml, for editors: "deepwork init"
keeps it as .deepwork/job.schema.json. "deepwork schema run" prints that of the events
that "deepwork run --json" prints, one per line.`,
		Args: takes(0, 1, "nothing, or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := job.Schema()
			if len(args) > 0 {
				if schema = runEventSchema; args[0] != "run" {
					return usagef(cmd, "there is no schema %q; give nothing, or run", args[0])
				}
			}
			_, err := a.out.Write(schema)
			return err
		},
	}
}

//go:embed run_event.schema.json
var runEventSchema []byte
