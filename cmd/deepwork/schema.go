package main

import (
	"github.com/spf13/cobra"

	"deepwork/catalog/job"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of job.yml",
		Long: `Print the JSON Schema (draft 2020-12) of job.yml, for editors: "deepwork init"
keeps it as .deepwork/job.schema.json.`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(schemaFile())
			return err
		},
	}
}

// schemaFile is the schema as a text file: it ends with a newline.
func schemaFile() []byte {
	schema := job.Schema()
	if len(schema) > 0 && schema[len(schema)-1] != '\n' {
		schema = append(schema[:len(schema):len(schema)], '\n')
	}
	return schema
}
