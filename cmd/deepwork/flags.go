package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagForms are the values that flags expect, by their type.
var flagForms = map[string]string{
	"bool": "true or false", "int": "a whole number", "float64": "a number such as 2.5", "duration": "a time such as 90s, 90m or 2h",
}

// flagFault returns the usage error of a flag that cannot be read.
func flagFault(cmd *cobra.Command, err error) error {
	if wrong, is := errors.AsType[*pflag.InvalidValueError](err); is {
		if form := flagForms[wrong.GetFlag().Value.Type()]; form != "" {
			return usagef(cmd, "--%s is %q; expected %s", wrong.GetFlag().Name, wrong.GetValue(), form)
		}
	}
	return usagef(cmd, "%v", err)
}
