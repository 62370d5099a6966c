"""What executes runs. ``base`` says what a run needs of an engine; ``in_process`` runs a model in this process.

``environment_engine`` runs it in an environment with tools.
"""
