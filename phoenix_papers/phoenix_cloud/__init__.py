"""Phoenix Cloud: batch jobs and a web service on one shared cluster, against two dedicated ones."""
