"""`kctl etl`: one module per verb. Nothing here imports PySpark: jobs run in a process of their own."""

from kctl.command.noun import Noun

etl = Noun(
    "etl",
    {
        "run": ("kafkad_etl.commands.run:run", "Run a job, or several in one Spark."),
        "submit": ("kafkad_etl.commands.submit:submit", "Run a PySpark program, or a job as kctl etl run does."),
        "init": ("kafkad_etl.commands.init:init", "Write a job file from an example, or list the examples."),
        "preview": ("kafkad_etl.commands.preview:preview", "Show what the sink would receive for the last rows."),
        "plan": ("kafkad_etl.commands.plan:plan", "Show what a run would do without doing it."),
        "status": ("kafkad_etl.commands.status:status", "Show how far a job has got."),
        "list": ("kafkad_etl.commands.status:list_jobs", "List the jobs that have a checkpoint."),
        "runs": ("kafkad_etl.commands.runs:runs", "Show when jobs ran and how that ended."),
        "doctor": (
            "kafkad_etl.commands.doctor:doctor",
            "Check whether jobs can run on this machine.",
        ),
        "jars": (
            "kafkad_etl.commands.jars:jars",
            "Download and check the jars that jobs need in addition to Spark's own.",
        ),
        "env": ("kafkad_etl.commands.env:env", "Print the variables that a spark-submit called by hand needs."),
        "compact": ("kafkad_etl.commands.compact:compact", "Merge small files that a job has written."),
        "schema": ("kafkad_etl.commands.schema:schema", "Print the JSON Schema of job files, for editors."),
        "test": ("kafkad_etl.commands.test:test", "Run the tests of jobs."),
        "validate": ("kafkad_etl.commands.validate:validate", "Check job files without running them."),
    },
    help="Run Spark jobs that move data from topics through SQL to files, tables and other topics.",
)
