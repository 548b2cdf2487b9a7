(** Closed forms of F (3.6 f) where it has one. *)

From Coq Require Import Reals List Lra Lia Psatz.
From Assay Require Import Sums Softmax Box.
Open Scope R_scope.

Lemma F_ub A C X : 1 <= A -> A <= exp C -> 0 < X <= 1 -> gain X (WG A (exp C) (exp C) X) <= F A C.
Proof.
  intros HA HE HX. rewrite (F_is_G_without_sigma A C (exp C)) by lra. pose proof (exp_pos C). apply G_ub; lra.
Qed.

(** Case ii: all radii equal. *)
Theorem F_equal_radii A C : 0 <= C -> A = exp C -> F A C = tanh (C / 2).
Proof.
  intros HC EA. pose proof (exp_ge_1 C HC) as H1.
  apply Rle_antisym; [apply F_le_tanh; lra|]. rewrite EA. set (E := exp C) in *.
  apply Rle_trans with (gain (1 / E) (WG E E E (1 / E))).
  2: { apply F_ub; fold E; [lra|lra|]. split; [apply Rdiv_lt_0_compat; lra|].
       apply Rmult_le_reg_r with E; [lra|]. field_simplify; lra. }
  rewrite tanh_exp. fold E.
  assert (P : 0 < 1 / E) by (apply Rdiv_lt_0_compat; lra). assert (EE : 1 / E * E = 1) by (field; lra).
  apply Rle_trans with (gain (1 / E) (Wof E 1 (1 / E))).
  - apply Req_le. unfold gain, Wof. field. split; nra.
  - apply gain_mono_W; [unfold Wof; nra|]. apply Wof_le_WG; try lra.
    + unfold h1. lra.
    + unfold h2. nra.
    + unfold h3. pose proof (sqrt_pos (1 / E)). nra.
Qed.

(** Case i: the optimum leaves radius zero off the set. *)
Theorem F_case_i A C : 1 < A -> A < 2 -> A^2 <= exp C * (2 - A) ->
  F A C = (A - 1) * (exp C - A) / (A * (exp C - 1)).
Proof.
  intros HA HA2 HC. set (E := exp C) in *.
  assert (HAE : A < E) by nra. assert (H2 : A * (E + 1) <= 2 * E) by nra.
  set (X0 := (A - 1) / (E - A)).
  assert (EX : X0 * (E - A) = A - 1) by (unfold X0; field; lra).
  assert (HX0 : 0 < X0) by (apply Rdiv_lt_0_compat; lra).
  assert (HX1 : X0 <= 1).
  { apply Rmult_le_reg_r with (E - A); [lra|]. rewrite EX.
    assert (0 <= (3 * A - 2) * (A - 1)) by (apply Rmult_le_pos; lra).
    assert (0 <= (2 - A) * (E + 1 - 2 * A)) by nra. nra. }
  assert (E12 : h1 E X0 = h2 A X0) by (unfold h1, h2; lra).
  assert (H24 : h2 A X0 <= h4 A X0).
  { unfold h2, h4. assert (A * X0 <= 2 - A); [|lra].
    apply Rmult_le_reg_r with (E - A); [lra|]. rewrite Rmult_assoc, EX. nra. }
  assert (V : (1 - 1 / A) * (1 / (1 + X0)) = (A - 1) * (E - A) / (A * (E - 1))) by (unfold X0; field; lra).
  rewrite <- V.
  assert (Hval : forall X, 0 <= X -> gain X (Wof A (h2 A X) X) = (1 - 1 / A) * (1 / (1 + X))).
  { intros X HX. unfold gain, Wof, h2. field. split; nra. }
  assert (Hi : 0 <= 1 - 1 / A) by (assert (1 / A <= 1) by (apply Rmult_le_reg_r with A; [lra|]; field_simplify; lra); lra).
  assert (Hdec : forall X, X0 <= X -> (1 - 1 / A) * (1 / (1 + X)) <= (1 - 1 / A) * (1 / (1 + X0))).
  { intros X HX. apply Rmult_le_compat_l; [assumption|]. unfold Rdiv. rewrite !Rmult_1_l. apply Rinv_le_contravar; lra. }
  assert (W0 : 0 <= Wof A (h2 A X0) X0) by (unfold Wof, h2; nra).
  apply Rle_antisym.
  - apply F_le; [lra|]. intros X HX. fold E.
    assert (WX : 0 <= WG A E E X) by (apply WG_nonneg; lra).
    destruct (Rle_lt_dec X0 X) as [L|L].
    + destruct (Rle_lt_dec (h2 A X) (h4 A X)) as [M|M].
      * apply Rle_trans with (2 := Hdec X L). rewrite <- Hval by lra. apply gain_mono_W; [assumption|].
        unfold WG. apply Wof_mono_h; [apply hG_le|assumption].
      * (* beyond the crossing of the second and the fourth term *)
        set (Xc := 2 / A - 1).
        assert (EXc : A * (1 + Xc) = 2) by (unfold Xc; field; lra).
        assert (HXc : X0 <= Xc) by (unfold h2, h4 in H24; apply Rmult_le_reg_l with A; lra).
        assert (HXc' : Xc <= X) by (unfold h2, h4 in M; apply Rmult_le_reg_l with A; lra).
        apply Rle_trans with (2 := Hdec Xc HXc). rewrite <- Hval by lra.
        apply Rle_trans with (gain X (Wof A (h4 A X) X)).
        -- apply gain_mono_W; [assumption|apply WG_le_top].
        -- replace (h2 A Xc) with (h4 A Xc) by (unfold h2, h4; lra). apply top_falls; lra.
    + (* before X0 the first term rises up to it *)
      assert (T1 : term A (h1 E) (d1 A E)) by (apply term1; lra).
      assert (Hk0 : h1 E X0 <= h4 A X0) by lra.
      assert (Hk : h1 E X <= h4 A X) by (destruct T1 as [T1 _]; apply (T1 X X0); lra).
      apply Rle_trans with (gain X (Wof A (h1 E X) X)).
      { apply gain_mono_W; [assumption|]. unfold WG. apply Wof_mono_h; [apply hG_le|assumption]. }
      rewrite <- Hval, <- E12 by lra.
      destruct (Rle_lt_dec (gain X (Wof A (h1 E X) X)) (gain X0 (Wof A (h1 E X0) X0))) as [|Gt]; [assumption|exfalso].
      assert (N : forall Y, 0 <= Y -> h1 E Y <= h4 A Y -> 0 <= Wof A (h1 E Y) Y).
      { intros Y HY HYk. apply Wof_nonneg; [unfold h1; nra|assumption]. }
      pose proof (tangent_gap A (h1 E) (d1 A E) X0 X T1 ltac:(lra) ltac:(lra) (N X0 ltac:(lra) Hk0) (N X ltac:(lra) Hk)) as K.
      assert (EW : 1 + Wof A (h1 E X0) X0 = A * (1 + X0)) by (rewrite E12; unfold Wof, h2; ring).
      assert (G0 : 0 <= gain X0 (Wof A (h1 E X0) X0)).
      { rewrite E12, Hval by lra. apply Rmult_le_pos; [assumption|]. left. apply Rdiv_lt_0_compat; lra. }
      specialize (K G0 Gt). rewrite EW in K.
      replace ((A * (1 + X0))^2 / (1 + X0)^2) with (A^2) in K by (field; lra).
      assert (Ed : d1 A E X0 = E * (2 - A)).
      { unfold d1. replace (A - 2 * (E - A) * X0) with (A - 2 * (X0 * (E - A))) by ring. rewrite EX. ring. }
      rewrite Ed in K. destruct (slope_neg _ _ (X - X0) ltac:(lra) K). lra.
  - apply Rle_trans with (gain X0 (WG A E E X0)); [|apply F_ub; fold E; lra].
    rewrite <- Hval by lra. apply gain_mono_W; [assumption|]. apply Wof_le_WG; try lra.
    unfold h3. rewrite <- E12. unfold h1. pose proof (sqrt_pos X0) as S0. pose proof (sqrt_sqrt X0 ltac:(lra)) as SS.
    assert (S1 : sqrt X0 <= 1) by (rewrite <- sqrt_1; apply sqrt_le_1_alt; lra).
    assert (X0 <= sqrt X0) by nra. assert (0 <= X0 * A) by (apply Rmult_le_pos; lra).
    assert (E * X0 <= E * sqrt X0) by (apply Rmult_le_compat_l; lra). lra.
Qed.
